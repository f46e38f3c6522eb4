/** A word of an address. People type addresses too, so a `%` may be nothing but a `%`. */
function decoded(word: string): string {
  try {
    return decodeURIComponent(word)
  } catch {
    return word
  }
}

/** Where we are: the words and the query behind the `#` of the address. */
class Route {
  words = $state.raw<string[]>([])
  query = $state.raw(new URLSearchParams())

  constructor() {
    const read = () => {
      const [path, query] = location.hash.replace(/^#\/?/, '').split('?')
      this.words = path.split('/').filter(Boolean).map(decoded)
      this.query = new URLSearchParams(query ?? '')
    }
    window.addEventListener('hashchange', read)
    read()
  }

  /** Change the query without a new entry in the history. */
  set(changes: Record<string, string | number | boolean | null | undefined>): void {
    const next = new URLSearchParams(this.query)
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === '' || value === false) next.delete(name)
      else next.set(name, String(value))
    }
    const text = next.toString()
    history.replaceState(null, '', `#/${this.words.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`)
    this.query = next
  }
}

export const route = new Route()

export function to(...words: (string | number)[]): string {
  return `#/${words.map((word) => encodeURIComponent(String(word))).join('/')}`
}
