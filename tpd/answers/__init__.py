"""What an explanation means: foils, what-if, turning points, sentences; imports evaluation and below."""
