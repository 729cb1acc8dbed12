"""Everything a model reads, each string once. Pure text: no clock, no files, no decisions."""
