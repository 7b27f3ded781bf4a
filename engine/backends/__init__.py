"""What runs the networks, or stands in for them, behind the one engine loop."""
