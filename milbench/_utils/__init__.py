"""Small tools that do not concern bags: files, locks, devices, images, random numbers, colours."""
