"""What lies on disk, and how it is read without running any of it; imports answers and below."""
