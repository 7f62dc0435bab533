"""How far the time model is from measurements: fits its efficiencies and reports the error on what was kept out."""
