import { sentence } from './api'

/** What was last loaded, and what went wrong since. Data stay while errors come and go. */
export interface Polled<T> {
  readonly data: T | undefined
  readonly error: string
  readonly at: number
  readonly loading: boolean
  refresh(): void
}

/** Load again and again for as long as the component lives. What `load` reads when called makes it load at once. */
export function poll<T>(load: (signal: AbortSignal) => Promise<T>, everyMs: number): Polled<T> {
  let data = $state.raw<T>()
  let error = $state('')
  let at = $state(0)
  let loading = $state(true)
  let again = $state(0)

  $effect(() => {
    void again
    const ending = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const turn = async (answer: Promise<T>) => {
      try {
        const found = await answer
        if (ending.signal.aborted) return
        data = found
        error = ''
        at = Date.now()
      } catch (reason) {
        if (ending.signal.aborted) return
        error = sentence(reason)
      }
      loading = false
      if (everyMs > 0) timer = setTimeout(next, document.hidden ? everyMs * 5 : everyMs)
    }
    const next = () => void turn(load(ending.signal))
    loading = true
    // Called here, so that the effect sees what the first call depends on.
    void turn(load(ending.signal))
    return () => {
      ending.abort()
      clearTimeout(timer)
    }
  })

  return {
    get data() {
      return data
    },
    get error() {
      return error
    },
    get at() {
      return at
    },
    get loading() {
      return loading
    },
    refresh: () => {
      again += 1
    },
  }
}
