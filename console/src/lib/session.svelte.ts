type Answer = { required: boolean; user?: string | null; token?: string; message?: string; fix?: string }

const PATH = '/console/session'

/** The user of the console, where the gateway requires a sign-in. */
class Session {
  state = $state<'asking' | 'open' | 'out' | 'in'>('asking')
  user = $state('')
  note = $state('')
  #token = ''

  /** What every request that changes something must carry. */
  get headers(): Record<string, string> {
    return this.#token ? { 'X-CSRF-Token': this.#token } : {}
  }

  async start(): Promise<void> {
    try {
      this.#take(await send('GET'))
    } catch {
      // The pages themselves show that the gateway does not answer, and try again.
      this.state = 'open'
    }
  }

  /** Sign in; the result is what went wrong, or nothing. */
  async signIn(username: string, password: string): Promise<string> {
    let answer: Answer
    try {
      answer = await send('POST', JSON.stringify({ username, password }))
    } catch {
      return 'The gateway does not answer. Check that it runs.'
    }
    if (answer.message) return answer.message
    this.#take(answer)
    return ''
  }

  async signOut(): Promise<void> {
    await send('DELETE').catch(() => undefined)
    this.#leave('You have signed out.')
  }

  /** A request was refused because no user is signed in (any more). */
  expired(): void {
    if (this.state === 'in') this.#leave('Your session has ended. Please sign in again.')
    else if (this.state === 'open') this.#leave('')
  }

  #leave(note: string): void {
    this.#token = ''
    this.user = ''
    this.note = note
    this.state = 'out'
  }

  #take(answer: Answer): void {
    this.#token = answer.token ?? ''
    this.user = answer.user ?? ''
    this.note = ''
    this.state = !answer.required ? 'open' : this.user ? 'in' : 'out'
  }
}

async function send(method: string, body?: string): Promise<Answer> {
  const headers = { ...session.headers, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) }
  const response = await fetch(PATH, { method, headers, body })
  const text = await response.text()
  const value = (text ? JSON.parse(text) : { required: true }) as Answer
  return { ...value, message: response.ok ? undefined : sentences(value, response.status) }
}

function sentences(answer: Answer, status: number): string {
  const fix = answer.fix ?? ''
  const message = (answer.message ?? `the gateway answered ${status}`).replace(fix ? `; ${fix}` : '', '')
  return [message, fix].filter(Boolean).map((part) => `${part[0].toUpperCase()}${part.slice(1)}.`).join(' ')
}

export const session = new Session()
