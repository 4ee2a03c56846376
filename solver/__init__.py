"""Choose: legal space, bounds, integer programs, certificates and conflicts. No formula lives here."""
