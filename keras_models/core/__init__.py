"""Parts shared by several papers: layers, losses, optimizers, initializers, rematerialisation."""
