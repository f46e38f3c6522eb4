import { link, part } from './api'
import type { Message } from './types'

const KEPT_MAX = 500
const PAINT_MS = 150

/** Records as they come, newest first. What arrives between two paintings is put in at once. */
export class Tail {
  messages = $state.raw<Message[]>([])
  seen = $state(0)
  state = $state<'connecting' | 'live' | 'lost' | 'paused'>('paused')
  #source: EventSource | undefined
  #waiting: Message[] = []
  #timer: ReturnType<typeof setInterval> | undefined

  start(topic: string, query: Record<string, string | null>): void {
    this.stop()
    this.state = 'connecting'
    const source = new EventSource(link(`/api/v1/topics/${part(topic)}/tail`, query))
    source.onopen = () => (this.state = 'live')
    // The browser connects again by itself, unless the gateway refused.
    source.onerror = () => {
      this.state = 'lost'
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.#again(source, topic, query), 2000)
    }
    source.onmessage = (event: MessageEvent<string>) => this.#waiting.push(JSON.parse(event.data) as Message)
    this.#source = source
    this.#timer = setInterval(() => this.#paint(), PAINT_MS)
  }

  stop(): void {
    this.#source?.close()
    this.#source = undefined
    clearInterval(this.#timer)
    this.#paint()
    this.state = 'paused'
  }

  clear(): void {
    this.messages = []
    this.seen = 0
  }

  #again(source: EventSource, topic: string, query: Record<string, string | null>): void {
    if (this.#source === source) this.start(topic, query)
  }

  #paint(): void {
    if (!this.#waiting.length) return
    this.seen += this.#waiting.length
    const fresh = this.#waiting.splice(0).reverse()
    const known = new Set(fresh.map((message) => `${message.partition}-${message.offset}`))
    const old = this.messages.filter((message) => !known.has(`${message.partition}-${message.offset}`))
    this.messages = [...fresh, ...old].slice(0, KEPT_MAX)
  }
}
