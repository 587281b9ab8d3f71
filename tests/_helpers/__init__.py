"""What tests share: stand-ins, reference implementations and data made by hand."""
