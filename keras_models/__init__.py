"""The papers, one module each: `Config`, `build`, `loss_fn`, `optimizers`, `serving`. No files, no stages."""
