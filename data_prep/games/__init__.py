"""Games, as positions to be examined in."""
