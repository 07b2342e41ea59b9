"""Values become words: notation of figures, and sections that every format renders."""
