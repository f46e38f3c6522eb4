import { session } from './session.svelte'

const TIMEOUT_MS = 12_000

/** A call that failed, in words that people can use. `status` is 0 when there was no answer at all. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly fix = '',
  ) {
    super(message)
  }
}

type Query = Record<string, string | number | boolean | null | undefined>

function address(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '')
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
  return text ? `${path}?${text}` : path
}

async function call<T>(method: string, path: string, body?: string, signal?: AbortSignal): Promise<T> {
  const limit = AbortSignal.timeout(TIMEOUT_MS)
  let response: Response
  try {
    response = await fetch(path, {
      method,
      headers: {
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...(method === 'GET' ? {} : session.headers),
      },
      body,
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    })
  } catch (error) {
    if (signal?.aborted) throw error
    if (limit.aborted) throw new ApiError(0, `no answer within ${TIMEOUT_MS / 1000} s`, 'it is retried')
    throw new ApiError(0, 'the gateway does not answer', 'check that it runs')
  }
  if (response.status === 401) session.expired()
  const text = await response.text()
  let value: unknown = null
  try {
    value = text ? JSON.parse(text) : null
  } catch {
    throw new ApiError(response.status, `the gateway answered ${response.status} without JSON`)
  }
  if (!response.ok) {
    const problem = value as { message?: string; fix?: string } | null
    const fix = problem?.fix ?? ''
    const message = (problem?.message ?? `the gateway answered ${response.status}`).replace(fix ? `; ${fix}` : '', '')
    throw new ApiError(response.status, message, fix)
  }
  return value as T
}

export const get = <T>(path: string, query?: Query, signal?: AbortSignal) =>
  call<T>('GET', address(path, query), undefined, signal)
export const post = <T>(path: string, body: unknown) => call<T>('POST', path, JSON.stringify(body))
/** Sends JSON text as it is: what a user typed must not lose digits on its way through JavaScript's numbers. */
export const postText = <T>(path: string, text: string) => call<T>('POST', path, text)
export const put = <T>(path: string, body: unknown) => call<T>('PUT', path, JSON.stringify(body))
export const remove = <T>(path: string) => call<T>('DELETE', path)
/** A name as a part of a path. Browsers take `..` out of paths however it is escaped; the gateway knows `..;` as it. */
export const part = (name: string) => (name === '.' || name === '..' ? `${name};` : encodeURIComponent(name))
export const link = address

export function sentence(error: unknown): string {
  if (error instanceof ApiError) return error.fix ? `${error.message}: ${error.fix}` : error.message
  return error instanceof Error ? error.message : String(error)
}
