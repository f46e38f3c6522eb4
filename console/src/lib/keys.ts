export const PLACES: Record<string, [string, string]> = {
  o: ['#/', 'Overview'],
  t: ['#/topics', 'Topics'],
  g: ['#/groups', 'Groups'],
  s: ['#/schemas', 'Schemas'],
  b: ['#/brokers', 'Brokers'],
  r: ['#/reassignments', 'Reassignments'],
  x: ['#/transactions', 'Transactions'],
  c: ['#/clients', 'Clients'],
  u: ['#/tenants', 'Tenants'],
  d: ['#/dead-letters', 'Dead letters'],
  p: ['#/pipelines', 'Pipelines'],
  a: ['#/audit', 'Audit'],
}
const CHORD_MS = 1200

/** Keys that work everywhere unless a field has the focus. Rows are whatever has `data-row`. */
export function listen(help: () => void): () => void {
  let prefix = 0
  const onKey = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement
    const typing = target.matches('input, textarea, select, [contenteditable]')
    if (event.key === 'Escape' && typing) return target.blur()
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return
    const key = event.key
    if (Date.now() - prefix < CHORD_MS && PLACES[key]) {
      prefix = 0
      location.hash = PLACES[key][0]
    } else if (key === 'g') prefix = Date.now()
    else if (key === '/') document.querySelector<HTMLElement>('[data-search]')?.focus()
    else if (key === 'n') document.querySelector<HTMLElement>('[data-new]')?.click()
    else if (key === '?') help()
    else if (key === 'j' || key === 'k') step(key === 'j' ? 1 : -1)
    else if (key === 'Enter' && target.matches('[data-row]')) open(target)
    else if (key === '[' || key === ']') document.querySelector<HTMLElement>(`[data-page="${key}"]`)?.click()
    else return
    event.preventDefault()
  }
  window.addEventListener('keydown', onKey)
  return () => window.removeEventListener('keydown', onKey)
}

function step(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>('[data-row]')]
  if (!rows.length) return
  const present = rows.indexOf(document.activeElement as HTMLElement)
  const next = present < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, present + by))
  rows[next].focus()
  rows[next].scrollIntoView({ block: 'nearest' })
}

function open(row: HTMLElement): void {
  const inside = row.querySelector<HTMLElement>('a[href]')
  if (inside) inside.click()
  else row.click()
}
