"""What there is to know of Alibaba Cloud besides its one call: its keys and files, its refusals, what people have to set up."""
