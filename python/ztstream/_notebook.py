"""What notebooks show of a file."""
import html
import itertools

_ROWS = 200  # of a table


def page_of(file):
    """HTML: a table of the tensors."""
    if file._held is None:
        return html.escape(repr(file))
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(str(each))}</td>" for each in row) + "</tr>" for row in (
        (name, tensor.type, list(tensor.shape), getattr(tensor, "encoding", "") if tensor._components else "",
         sum(part.nbytes for part in tensor.parts.values() if not part._unreadable))
        for name, tensor in itertools.islice(file.items(), _ROWS)))
    more = f"<p>and {len(file) - _ROWS} more</p>" if len(file) > _ROWS else ""
    head = "".join(f"<th>{each}</th>" for each in ("name", "type", "shape", "stored as", "bytes"))
    return f"<p>{html.escape(repr(file)[1:-1])}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"
