"""What tokens cost: models, prices, providers' caches and token counts."""
