export interface Problem {
  level: 'error' | 'warning' | 'note'
  message: string
  fix: string
}
export interface Broker {
  id: number
  host: string
  port: number
  rack: string | null
  fenced: boolean
  silent: boolean
  leaders: number
  replicas: number
  out_of_sync: number
}
export interface Link {
  leader: number
  follower: number
  partitions: number
  behind: number
}
export interface Cluster {
  cluster_id: string
  taken_ms: number
  controller: number | null
  topics: number
  status: 'ok' | 'degraded' | 'failing'
  problems: Problem[]
  partitions: number
  under_replicated: number
  offline: number
  brokers: Broker[]
  links: Link[]
}
/** What a tenant has, and what it may have; null for any amount. Limits of rates are for each broker. */
export interface Use {
  used: number
  limit: number | null
}
export interface Tenant {
  name: string
  prefix: string
  topics: Use
  partitions: Use
  storage_bytes: Use
  produce_rate: Use
  consume_rate: Use
  refused_batches: number
}
/** A client that pushes its metrics to the brokers. */
export interface PushingClient {
  instance_id: string
  client_id: string
  software: string
  version: string
  host: string
  broker: number
  interval_ms: number
  silence_ms: number
  is_terminating: boolean
  series_count: number
  left_out: number
  requested_metrics: string[]
}
export interface PushedSeries {
  name: string
  is_total: boolean
  value: number
  labels: Record<string, string>
}
export interface HotKey {
  key: string
  partitions: number[]
  records: number
  size_bytes: number
}
/** What brokers counted at the end of a topic. A figure of a key is too low by at most the error. */
export interface HotKeyCount {
  partitions: number
  records: number
  size_bytes: number
  keyless_records: number
  keyless_bytes: number
  records_error: number
  bytes_error: number
  keys: HotKey[]
  silent_brokers: number[]
}
export interface Throughput {
  points: { at_ms: number; records_per_s: number }[]
  busiest: { topic: string; records_per_s: number }[]
}
export interface TopicRow {
  name: string
  internal: boolean
  partitions: number
  replication_factor: number
  under_replicated: number
  offline: number
  records?: number
  written?: number
  origin?: string
}
export interface Page {
  total: number
  page: number
  pages: number
}
export interface PartitionRow {
  partition: number
  leader: number
  replicas: number[]
  in_sync: number[]
  beginning: number | null
  end: number | null
  size_bytes: number | null
}
export interface TopicDetail extends TopicRow {
  partition_list: PartitionRow[]
}
export interface Decoded {
  format: 'null' | 'json' | 'text' | 'schema' | 'hex'
  text: string | null
  size: number
  schema_id?: number
  truncated?: boolean
  note?: string
}
export interface Message {
  partition: number
  offset: number
  timestamp: number
  key: Decoded
  value: Decoded
  headers: (Decoded & { name: string })[]
  origin?: Origin
}
/** The origin of a dead letter, according to its headers. */
export interface Origin {
  topic: string | null
  partition: number | null
  offset: number | null
  reason: string | null
  /** Of a share group's letters. */
  group: string | null
  attempts: number | null
}
export interface Setting {
  name: string
  value: string | null
  is_default: boolean
  is_read_only: boolean
  is_sensitive: boolean
  source: string
}
export interface GroupRow {
  name: string
  state: string
  type: string
  lag: number | null
}
export interface GroupDetail extends GroupRow {
  assignor: string
  history: { at_ms: number; lags: Record<string, number> }[]
  coordinator: number | null
  members: { id: string; client_id: string; instance_id: string | null; host: string; partitions: number }[]
  partitions: {
    topic: string
    partition: number
    committed: number | null
    end: number | null
    lag: number | null
    member: string | null
  }[]
}
export interface Quorum {
  leader: number
  epoch: number
  high_watermark: number
  nodes: {
    id: number
    role: string
    address: string | null
    log_end_offset: number
    lag: number | null
    last_fetch_ms: number | null
    last_caught_up_ms: number | null
  }[]
}
export interface Directory {
  broker: number
  path: string
  error: number
  cordoned: boolean
  replicas: number
  moving: number
  moving_lag: number
  size_bytes: number
  total_bytes: number | null
  usable_bytes: number | null
  full_in_ms: number | null
}
