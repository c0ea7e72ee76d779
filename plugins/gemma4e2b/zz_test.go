package gemma4e2b_test
import ("testing";"os";"time";"github.com/zoo-sdk/zoo/plugins/gemma4e2b";"github.com/zoo-sdk/zoo/zoo")
func TestZZ(t *testing.T){
 d:="/tmp/zzpack"; os.RemoveAll(d); os.Mkdir(d,0o755)
 b:=time.Now(); first:=true
 if err:=gemma4e2b.New().Synthesize(t.Context(), zoo.SynthesizeRequest{Model:"gemma-4-e2b",Dir:d,Progress:func(a,n int64){ if first {first=false; t.Log("first progress",time.Since(b),n)}}}); err!=nil {t.Fatal(err)}
 t.Log(time.Since(b))
 p,err:=zoo.OpenPack(d); if err!=nil {t.Fatal(err)}
 t.Log(p.Digest(), p.SizeBytes(), p.Manifest().Synthetic())
 p.Close()
}
