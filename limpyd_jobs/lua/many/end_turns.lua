-- verb: end turns
-- what: notes that all jobs of a spread have their moment, so that who does the same again does not go on with its
--       interval
-- request
--   turns
--   interval, spread   none
-- reply
--   done

--@include envelope
--@include spreading

local at, last = kept_turn()
if at > 0 then keep_turn(at, last) else redis.call('DEL', request.turns) end
return answer('done')
