// Tables of class `sortable`: a heading is a button that sorts the rows by its column, and again the other way.
document.querySelectorAll('table.sortable').forEach((table) => {
  const body = table.tBodies[0];
  const compare = new Intl.Collator('en', { numeric: true }).compare;
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement('button');
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener('click', () => {
      const ascending = heading.ariaSort !== 'ascending';
      for (const other of heading.parentElement.cells) other.removeAttribute('aria-sort');
      heading.ariaSort = ascending ? 'ascending' : 'descending';
      const text = (row) => row.cells[column].textContent.trim();
      const empty = (row) => text(row) === '';
      const rows = [...body.rows].sort((a, b) =>
        empty(a) - empty(b) || (ascending ? 1 : -1) * compare(text(a), text(b)));
      body.append(...rows);  // empty cells stay last
    });
  });
});
