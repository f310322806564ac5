"""A PDF of a few pages, written by hand."""


def small_pdf(*pages: str) -> bytes:
    """The bytes of a PDF whose pages show these lines of ASCII."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, text in enumerate(pages):
        lines = "".join(f"({line}) Tj 0 -14 Td " for line in text.split("\n") if text)
        stream = f"BT /F1 12 Tf 72 720 Td {lines}ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {5 + 2 * number} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\n"
    return data + f"{end}startxref\n{len(data)}\n%%EOF\n".encode()
