"""The API-neutral form of all that an optimizer has learned."""
