"""Readers of weight files, without the framework that wrote them."""
