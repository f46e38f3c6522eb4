const whole = new Intl.NumberFormat('en-US')
const UNITS = ['B', 'KB', 'MB', 'GB', 'TB', 'PB']

export const count = (value: number | null | undefined) =>
  value === null || value === undefined ? '–' : whole.format(value)

export function short(value: number): string {
  if (value < 10 && value % 1) return value.toFixed(1)
  if (value < 10_000) return whole.format(Math.round(value))
  const [scaled, unit] = value < 1e6 ? [value / 1e3, 'K'] : [value / 1e6, 'M']
  return `${scaled.toFixed(1).replace(/\.0$/, '')} ${unit}`
}

export const plural = (value: number | null | undefined, what: string) =>
  `${count(value)} ${what}${value === 1 ? '' : 's'}`

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–'
  let unit = 0
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000
    unit += 1
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`
}

export function ago(then: number | null | undefined, now: number): string {
  if (!then) return '–'
  const seconds = Math.max(0, now - then) / 1000
  if (seconds < 3) return 'now'
  if (seconds < 120) return `${Math.round(seconds)} s ago`
  if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86_400)} d ago`
}

export function duration(ms: number): string {
  const minutes = Math.floor(ms / 60_000)
  if (minutes < 120) return `${minutes} min`
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} days`
}

export function clock(ms: number): string {
  const date = new Date(ms)
  return `${date.toLocaleTimeString('en-GB')}.${String(date.getMilliseconds()).padStart(3, '0')}`
}

export function moment(ms: number): string {
  const date = new Date(ms)
  const day = `${date.getFullYear()}-${String(date.getMonth() + 1).padStart(2, '0')}-${String(date.getDate()).padStart(2, '0')}`
  return `${day} ${clock(ms)}`
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gs

/** JSON on several lines, every token of it as it was written; any other text as it is. */
export function pretty(text: string | null): string {
  if (text === null) return 'null'
  if (notJson(text)) return text
  const tokens = text.match(TOKEN) ?? []
  const line = (depth: number) => `\n${'  '.repeat(depth)}`
  let depth = 0
  let written = ''
  tokens.forEach((token, index) => {
    const opens = token === '{' || token === '['
    const closes = token === '}' || token === ']'
    const empty = closes && /[{[]/.test(tokens[index - 1]) && tokens[index - 1].length === 1
    if (closes) depth -= 1
    if (closes && !empty) written += line(depth)
    written += token === ':' ? ': ' : token
    if (opens) depth += 1
    const next = tokens[index + 1]
    if (token === ',' || (opens && next !== '}' && next !== ']')) written += line(depth)
  })
  return written
}

/** Why a text is not JSON; empty where it is. Its value is never used: JavaScript's numbers would change it. */
export function notJson(text: string): string {
  try {
    JSON.parse(text)
    return ''
  } catch (reason) {
    return (reason as Error).message
  }
}

const DAY_MS = 86_400_000
/** A duration in milliseconds, in readable form; empty where it is no duration. */
export function span(text: string): string {
  const ms = Number(text)
  if (!Number.isFinite(ms) || ms < 1000) return ''
  if (ms > 1000 * 365 * DAY_MS) return 'without end'
  if (ms % DAY_MS === 0) return `${ms / DAY_MS} d`
  if (ms % 3_600_000 === 0) return `${ms / 3_600_000} h`
  return ms % 60_000 === 0 ? `${ms / 60_000} min` : `${ms / 1000} s`
}
