import { get } from './api'
import { poll, type Polled } from './poll.svelte'
import type { Cluster } from './types'

const EVERY_MS = 2000

/** The cluster's health, which every page shows, and a clock that ticks. */
class Health {
  polled = $state.raw<Polled<Cluster>>()
  now = $state(Date.now())

  /** Start; from a component that lives as long as the page. */
  follow(): void {
    this.polled = poll((signal) => get<Cluster>('/api/v1/cluster', {}, signal), EVERY_MS)
    $effect(() => {
      const timer = setInterval(() => (this.now = Date.now()), 1000)
      return () => clearInterval(timer)
    })
  }

  get cluster(): Cluster | undefined {
    return this.polled?.data
  }
}

export const health = new Health()
