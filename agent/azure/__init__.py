"""All that speaks to Microsoft Entra ID through azure-identity, and what of it people have to set up."""
