"""What the engine tells about itself: metrics, acceptance by request, tree choices, step trace.

Observers are plain objects beside the loop, told after every iteration and of every ended request.
None of them keeps prompt text, output text or token ids. Their time is on nobody's clock.
"""
