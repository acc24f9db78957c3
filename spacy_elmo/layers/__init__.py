"""thinc layers: segmenters, encoder, listener, scalar mix and architectures with ELMo in them."""
