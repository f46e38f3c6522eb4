export interface DiffLine {
  kind: 'same' | 'added' | 'removed'
  text: string
}
const LINES_MAX = 3000

/** The lines of two texts side by side: the longest run of lines that both have stays, the rest came or went. */
export function diff(before: string, after: string): DiffLine[] {
  const old = before.split('\n').slice(0, LINES_MAX)
  const fresh = after.split('\n').slice(0, LINES_MAX)
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(fresh.length + 1))
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = fresh.length - 1; j >= 0; j--)
      common[i][j] = old[i] === fresh[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1])
  const lines: DiffLine[] = []
  let i = 0
  let j = 0
  while (i < old.length || j < fresh.length) {
    if (i < old.length && j < fresh.length && old[i] === fresh[j]) {
      lines.push({ kind: 'same', text: old[i++] })
      j++
    } else if (j >= fresh.length || (i < old.length && common[i + 1][j] >= common[i][j + 1]))
      lines.push({ kind: 'removed', text: old[i++] })
    else lines.push({ kind: 'added', text: fresh[j++] })
  }
  return lines
}
