"""Networks as other engines take them."""
