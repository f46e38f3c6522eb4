import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

// The build is committed. A test compares this hash of the sources with the one that the built page carries.
const SOURCES = ['index.html', 'package-lock.json', 'package.json', 'src', 'svelte.config.js', 'tsconfig.json', 'vite.config.mjs']

function files(path) {
  const entries = readdirSync(path, { withFileTypes: true })
  return entries.flatMap((entry) => (entry.isDirectory() ? files(join(path, entry.name)) : [join(path, entry.name)]))
}

function sourcesHash() {
  const paths = SOURCES.flatMap((name) => (name === 'src' ? files(name) : [name])).sort()
  const hash = createHash('sha256')
  for (const path of paths) {
    const content = createHash('sha256').update(readFileSync(path)).digest('hex')
    hash.update(`${path} ${content}\n`)
  }
  return hash.digest('hex')
}

const stamp = {
  name: 'stamp-sources',
  transformIndexHtml: () => [
    { tag: 'meta', attrs: { name: 'penstock-sources', content: sourcesHash() }, injectTo: 'head' },
  ],
}

export default defineConfig({
  base: './',
  plugins: [svelte(), stamp],
  build: {
    outDir: '../src/penstock/gateway/console/pages',
    emptyOutDir: true,
    assetsDir: '',
    target: 'es2022',
    cssCodeSplit: false,
    modulePreload: false,
    rollupOptions: {
      output: { entryFileNames: 'console.js', assetFileNames: 'console[extname]', inlineDynamicImports: true },
    },
  },
  server: { proxy: { '/api': 'http://localhost:8080', '/v3': 'http://localhost:8080', '/registry': 'http://localhost:8080' } },
})
