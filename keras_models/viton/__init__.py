"""VITON-HD: 'VITON-HD: High-Resolution Virtual Try-On via Misalignment-Aware Normalization' (Choi et al. 2021)."""
