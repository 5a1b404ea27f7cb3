"""What more than one paper is built of."""
