"""Looking into a biLM: neighbours, senses, probes, similarity, pictures of surprisal."""
