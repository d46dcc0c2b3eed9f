"""Everything that predicts expected future outcomes; imports policies and below."""
