"""Tells others what becomes of a job: messages, their delivery, and when which is sent."""
