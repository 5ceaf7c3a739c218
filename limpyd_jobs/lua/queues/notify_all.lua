-- verb: notify all
-- what: ends the wait of all idle workers of a name, for them to look again
-- KEYS[1]  the list of a name that they wait for: queue model, ':_signal:', name
-- reply
--   done

--@include envelope
--@include signals

notify(KEYS[1], true)
return answer('done')
