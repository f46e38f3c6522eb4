export type Theme = 'auto' | 'light' | 'dark'
const KEY = 'penstock-theme'

/** What the person chose; `auto` follows the system. Browsers that keep nothing are on `auto`. */
export function theme(): Theme {
  try {
    const kept = localStorage.getItem(KEY)
    return kept === 'light' || kept === 'dark' ? kept : 'auto'
  } catch {
    return 'auto'
  }
}

export function applyTheme(chosen: Theme = theme()): void {
  if (chosen === 'auto') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = chosen
  try {
    localStorage.setItem(KEY, chosen)
  } catch {
    // Private windows may keep nothing; the choice then lasts as long as the page.
  }
  window.dispatchEvent(new Event('penstock-theme'))
}

/** A colour of the style sheet as canvases take it: the one that holds in the present scheme. */
export function colour(name: string, opacity = 1): string {
  const probe = document.createElement('i')
  probe.style.color = `var(${name})`
  document.body.append(probe)
  const [red, green, blue] = getComputedStyle(probe).color.match(/[\d.]+/g) ?? ['0', '0', '0']
  probe.remove()
  return `rgba(${red}, ${green}, ${blue}, ${opacity})`
}
