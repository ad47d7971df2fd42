"""Long work in parts: many processes on many machines make a list of results in one folder that they share."""
