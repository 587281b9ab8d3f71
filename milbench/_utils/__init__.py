"""Small tools that know nothing of bags: files, locks, devices, images, random numbers, colours."""
