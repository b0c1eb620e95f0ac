"""Networks: encoders of observations, and heads on top of them."""
