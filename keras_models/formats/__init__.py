"""Networks in the formats of other engines."""
