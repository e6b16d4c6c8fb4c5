"""How noise is added: arrays in, arrays out."""
