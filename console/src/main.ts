import './app.css'
import { mount } from 'svelte'
import Entrance from './Entrance.svelte'
import { applyTheme } from './lib/theme'

applyTheme()
const target = document.getElementById('app')
if (target) mount(Entrance, { target })
