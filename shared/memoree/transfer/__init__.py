"""Moving a whole tenant: one archive that any tool reads, written and read in bounded memory."""
