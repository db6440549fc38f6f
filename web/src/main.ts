// Entry point: styles, then the shell.
import './styles/tokens.css';
import './styles/base.css';
import './styles/controls.css';

import { mount } from 'svelte';

import App from './App.svelte';

const target = document.getElementById('app');
if (target) mount(App, { target });
