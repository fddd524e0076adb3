"""What the page Learn needs beside X-ray: a tiny model, trained while one looks on."""
